"""Classic benchmark functions of the field, one short file each."""

from anchorlab.tasks.classics.associative_recall import AssociativeRecall
from anchorlab.tasks.classics.brackets import Brackets
from anchorlab.tasks.classics.linear_regression import LinearRegression
from anchorlab.tasks.classics.modular_arithmetic import ModularArithmetic
from anchorlab.tasks.classics.repeated_sequence import RepeatedSequence
from anchorlab.tasks.classics.sparse_parity import SparseParity
from anchorlab.tasks.classics.superposition import Superposition
