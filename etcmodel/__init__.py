"""ETC and ReadTwice for TensorFlow: long and structured documents in Keras.

The names in `__init__.pyi` are imported, together with TensorFlow, when they
are first used.
"""

import lazy_loader

from etcmodel import registration

__version__ = "1.0.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

registration.register_lazily()
