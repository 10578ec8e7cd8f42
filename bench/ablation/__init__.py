"""Every strategy with several seeds on the same data, and what the test questions say of them."""
