"""`prismem bench serve`: what the model-calling stages get out of a model, against what it gives without the engine."""
