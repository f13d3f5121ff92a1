"""Recovery: what a solver does when a rank is lost: nothing, go on with those that are left, or with spares."""
