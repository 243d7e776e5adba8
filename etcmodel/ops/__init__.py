"""Pure tensor functions: attention, and helpers for layers and features."""
