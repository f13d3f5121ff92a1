"""Instances: replicas of the net run by threads inside a rank. Where they run, and how their gradients meet.

- `instances`: the settings record.
- `topology`, `places`, `binding`, `pages`: NUMA domains, the cores of each instance, where memory lies.
- `gathers/`: which additions sum the instances' gradients, and when; one way a file.
- `gradient_sums`: the threads' additions, as a gather allows them.
- `submissions`: an instance marks its layers as complete, as the iteration does.
- `joined_sums`: numbers that layers sum over the instances.
- `shared_parameters`: one copy of the parameters in each domain.
- `crew`: the instances' threads.
- `simulation/`: their throughput on a machine with more cores, predicted.
"""
