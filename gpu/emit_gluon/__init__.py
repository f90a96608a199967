"""A plan as Gluon text for Hopper: rings in shared memory, a loader warp, warp groups."""
