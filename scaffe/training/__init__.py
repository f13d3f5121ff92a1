"""Training: the solver, and what it logs, counts and answers to."""
