"""Eko: its callback messages, stored as events of their tasks."""
