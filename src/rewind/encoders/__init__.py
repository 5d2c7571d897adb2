"""Pretrained text and video encoders chosen by name, one module for each library that loads them."""
