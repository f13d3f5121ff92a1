"""Simulation of whole iterations: the workflows and schedules that train, on ranks in virtual time."""

from scaffe.simulation.clusters import DescribedCluster, find_cluster
from scaffe.simulation.iteration import simulate_iteration
from scaffe.simulation.result import Iteration

__all__ = ["DescribedCluster", "Iteration", "find_cluster", "simulate_iteration"]
