"""Export: tasks as data files for other programs."""

from anchorlab.tasks.export.export import FORMATS, export
