"""What the tests of the whole platform stand on: a real server, a real registry, and a look at what is left behind."""
