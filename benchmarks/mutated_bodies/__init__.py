"""Mutated request bodies for every route that takes one, and what they cost the server: python -m benchmarks.mutated_bodies"""
