"""The search without models: a laboratory and a designer that follow the model of docs/simulation.md."""
