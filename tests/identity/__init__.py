"""Keys, signatures and what is published with them."""
