"""Files of prepared days, opened for reading."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from trainer.errors import InputError
from trainer.storage.filesystem import open_parquet

REMEDY = "remove that partition and prepare its day again"


@contextmanager
def open_prepared(uri: str) -> Iterator[pq.ParquetFile]:
    """Opens a file of a prepared day, whose pages are held against their checksums.

    Raises:
        InputError: It is gone or cannot be read, told so of whatever the block reads too.
        StorageError: Storage failed for too long.
    """
    try:
        with open_parquet(uri) as file:
            yield file
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise InputError(f"{uri}: is gone; {REMEDY}") from error
        raise
    except (pa.ArrowException, OSError, StopIteration, IndexError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{uri}: cannot be read ({reason[:200]}); {REMEDY}") from error
