"""What compilers and profilers say, joined to source lines."""
