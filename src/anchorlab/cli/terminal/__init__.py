"""Terminal output of commands: text, tables, forecasts, and how a command ends."""
