"""What developers run now and then: nothing imports it."""
