"""Trained models that the package ships."""

from anchorlab.trained.zoo import zoo
