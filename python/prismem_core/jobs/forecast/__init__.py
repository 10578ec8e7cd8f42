"""What a run will ask of its models: bounds and expected values from real counts, before anything is called."""
