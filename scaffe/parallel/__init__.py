"""How ranks work together: the world, and the choices of when and how parameters and gradients meet."""
