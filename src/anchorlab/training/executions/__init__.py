"""Executions: take one optimiser step with all members, member by member or mapped, with the same result for a member.

In float64, weights agree to 1e-10. In float32 they agree within rounding, which training amplifies: after 30 steps of
Adam at a learning rate of 1e-3, losses agree to a relative 1e-4 and weights to 3e-4.
"""

from anchorlab.training.executions.mapped import Graphs, MappedExecution, MappedGradients
from anchorlab.training.executions.member import MemberExecution, member_module
