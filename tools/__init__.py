"""Tools of developers; nothing imports them."""
