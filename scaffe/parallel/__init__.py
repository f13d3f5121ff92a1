"""How ranks train together: the World, propagation, aggregation, workflows, and what watches over them."""
