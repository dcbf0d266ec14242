"""Eko (FellouAI/eko): its callback messages and chains as transcripts, its messages as events, and the contexts of its agents."""
