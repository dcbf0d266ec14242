"""Record agents that do not know the recorder: their functions are patched, and the clients of models too."""
