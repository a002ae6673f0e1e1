"""The anchor functions of the paper, one factory per file."""

from anchorlab.tasks.anchor.paper.classification import classification
from anchorlab.tasks.anchor.paper.composite import composite
from anchorlab.tasks.anchor.paper.frequency import frequency
from anchorlab.tasks.anchor.paper.identity import identity
from anchorlab.tasks.anchor.paper.multi_anchor import multi_anchor
from anchorlab.tasks.anchor.paper.reading_comprehension import reading_comprehension
from anchorlab.tasks.anchor.paper.recitation import recitation
from anchorlab.tasks.anchor.paper.statistical import statistical
from anchorlab.tasks.anchor.paper.synonym import synonym
from anchorlab.tasks.anchor.paper.two_distances import two_distances
from anchorlab.tasks.anchor.paper.working_memory import working_memory
