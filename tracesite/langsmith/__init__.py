"""LangSmith's own protocol: its SDKs, and with them LangChain and LangGraph, send their runs here.

Source: langchain-ai/langsmith-sdk, python/langsmith/client.py.
"""
