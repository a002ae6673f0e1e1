"""What a study hands on, as plain values: claims with verdicts, figures, tables."""
