"""What every kind of a thing must do, once: kinds register, tests run each property over all of them."""
