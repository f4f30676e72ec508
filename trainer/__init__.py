"""The core of Thawline: windows, batches, embeddings, model, thaw, evaluation, registry.

Imports neither kfp, nor ``components``, nor ``pipelines``.
"""
