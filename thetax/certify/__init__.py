"""What is guaranteed: how many labellings a class of functions can make, how many regions a network can have."""
