"""The client library: ``AsyncClient`` for asyncio, ``Client`` for blocking code."""

from polydomo.client.aio import DEFAULT_URL, AsyncClient
from polydomo.client.blocking import Client
from polydomo.client.catalog import AsyncCatalog
from polydomo.client.message import Message, Result
from polydomo.client.retry import Retries
from polydomo.client.security import Security

__all__ = ["DEFAULT_URL", "AsyncCatalog", "AsyncClient", "Client", "Message", "Result", "Retries", "Security"]
