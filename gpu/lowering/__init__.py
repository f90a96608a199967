"""From a graph and its schedule to a plan: which tiles a kernel holds, in which loops and orders."""
