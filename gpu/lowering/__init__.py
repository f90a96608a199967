"""From a graph and its schedule to a plan: the tiles a kernel holds, their loops and orders."""
