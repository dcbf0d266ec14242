"""Sample sessions, and the demo that loads them."""
