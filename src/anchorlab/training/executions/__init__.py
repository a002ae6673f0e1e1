"""Executions: take a training step member by member, or mapped over all members, with the same result."""

from anchorlab.training.executions.gradients import MappedGradients
from anchorlab.training.executions.graphs import Graphs
from anchorlab.training.executions.mapped import MappedExecution
from anchorlab.training.executions.member import MemberExecution, member_module
from anchorlab.training.executions.step import Execution
