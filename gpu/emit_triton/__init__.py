"""A plan as Triton text: portable, and what the interpreter runs."""
