"""The ways to run a step: member by member, or mapped over all members; a member's result is the same in each."""

from anchorlab.training.executions.mapped import MappedExecution
from anchorlab.training.executions.member import MemberExecution, member_module
from anchorlab.training.executions.step import Execution
