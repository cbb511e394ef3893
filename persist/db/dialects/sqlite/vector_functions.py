"""Loads the sqlite-vec extension, which computes distances between packed float32 vectors in the database."""

import logging
import sqlite3

from sqlalchemy import Connection

from persist.db.dialects.vector_functions import VectorFunctions

log = logging.getLogger("persist")

_LOADED = "persist: vector functions"


SQLITE_VEC = VectorFunctions("sqlite-vec", "vec_distance_cosine", "vec_distance_l2")


def sqlite_vec_functions(connection: Connection) -> VectorFunctions | None:
    """Load sqlite-vec into a connection at the first call, and return its functions; None if it cannot be loaded."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    if _LOADED not in connection.info:
        connection.info[_LOADED] = SQLITE_VEC if load_sqlite_vec(driver) else None
    functions: VectorFunctions | None = connection.info[_LOADED]
    return functions


def load_sqlite_vec(driver: sqlite3.Connection) -> bool:
    """Load sqlite-vec if it is installed; return whether it was loaded. Extension loading is disabled again afterwards."""
    try:
        import sqlite_vec

        driver.enable_load_extension(True)
    except (ImportError, AttributeError, sqlite3.Error):  # many Python builds lack the method
        return False
    try:
        sqlite_vec.load(driver)
    except sqlite3.Error as error:  # such as a library for another CPU architecture
        log.debug("sqlite-vec cannot be loaded: %s", error)
        return False
    finally:
        driver.enable_load_extension(False)
    return True
