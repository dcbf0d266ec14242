"""Record agents that do not know the recorder: patched functions, and the clients of models."""
