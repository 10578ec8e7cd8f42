"""A catalogue of program edits: designs as values, their source, and named steps from one design to the next."""
