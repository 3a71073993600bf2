"""Tools of developers; neither the library nor the benchmark imports them."""
