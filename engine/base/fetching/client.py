"""The HTTP client of all that is asked of other servers: proxies and certificates of the environment, redirections only
to what encrypts, and a token for nobody but the server that it is meant for.

httpx2 is imported where it is needed: GPU packs have none, and ask nobody.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import ssl
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from engine.base.fetching import trust
from engine.base.fetching.errors import FetchFailed, causes
from engine.base.installation import version

if TYPE_CHECKING:
    import httpx2

    _Client = TypeVar("_Client", httpx2.Client, httpx2.AsyncClient)

MOST_REDIRECTIONS = 10
PROXIES = ("http", "https", "socks5", "socks5h")
"""Kinds of proxies that can be used."""
BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name a file of certificates; the first that is set counts."""


@contextlib.contextmanager
def opened(
    url: str, timeout: float, headers: Mapping[str, str] | None = None, token: str = ""
) -> Iterator[httpx2.Response]:
    """The answer to a GET, whose content is still to be read. ``timeout``: seconds without a byte. ``token`` is told to
    the server of ``url``, and to those that it sends on to for as long as they are the same.

    Raises :class:`FetchFailed` for surroundings in which nothing can be asked, and httpx2.HTTPError.
    """
    import httpx2

    try:
        asked = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        raise FetchFailed(f"{url} is not an address that can be asked. Check HF_ENDPOINT.") from None
    with _client(httpx2.Client, timeout) as client:
        for _ in range(MOST_REDIRECTIONS + 1):
            request = client.build_request("GET", asked, headers=headers)
            if token:
                request.headers["Authorization"] = f"Bearer {token}"
            try:
                response = client.send(request, stream=True)
            except (httpx2.InvalidURL, ValueError):
                raise httpx2.RemoteProtocolError("it sends on to what is not an address", request=request) from None
            try:
                if response.next_request is None:
                    yield response
                    return
                onwards = response.next_request.url
            finally:
                response.close()
            if asked.scheme == "https" and onwards.scheme != "https":
                raise FetchFailed(
                    f"{asked.host} sends to {onwards.host}, which does not encrypt. "
                    "Nothing was taken from there. Try again on another network."
                )
            if origin(str(onwards)) != origin(str(asked)):
                token = ""  # it stays untold, even if a later one sends back
            asked = onwards
        raise httpx2.TooManyRedirects(f"it sends on more than {MOST_REDIRECTIONS} times", request=request)


@contextlib.asynccontextmanager
async def streamed(
    url: str, timeout: httpx2.Timeout, token: str = "", posted: bytes | None = None
) -> AsyncIterator[httpx2.Response]:
    """The answer to a GET, or to a POST of JSON, whose content is still to be read. It is sent on nowhere, and this
    machine's own servers are asked without a proxy. Cancelled, it closes the connection.

    Raises :class:`FetchFailed` for surroundings in which nothing can be asked, and httpx2.HTTPError.
    """
    import httpx2

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if posted is not None:
        headers["Content-Type"] = "application/json"
    async with _client(httpx2.AsyncClient, timeout, proxies=not is_here(url)) as client:
        request = client.build_request("GET" if posted is None else "POST", url, content=posted, headers=headers)
        response = await client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()


def is_here(url: str) -> bool:
    """Return True if the address is one of this machine alone (loopback)."""
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def origin(url: str) -> str:
    """The server of an address: its scheme, host and port, the port left out where it is the usual one."""
    parts = urlsplit(url)
    with contextlib.suppress(ValueError):
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port not in (None, usual) else "")
    return url


def way_to(url: str) -> str:
    """A server by its name, and the variable of the proxy that it is asked through, for a sentence about both."""
    parts = urlsplit(url)
    host, proxies = parts.hostname or "", urllib.request.getproxies()
    kind = next((each for each in (parts.scheme, "all") if proxies.get(each)), "")
    if not kind or urllib.request.proxy_bypass(host):
        return host
    return f"{host}, through the proxy in {_variable(kind) or 'the system settings'},"


def certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The certificate that was not accepted, where that is what an error came of."""
    found = causes(error) if error is not None else ()
    return next((each for each in found if isinstance(each, ssl.SSLCertVerificationError)), None)


def certificates() -> ssl.SSLContext | bool:
    """What a client of httpx2 is to trust (``verify``), as the environment has it. Raises :class:`FetchFailed`."""
    return _context(*map(_named, (*BUNDLES, "SSL_CERT_DIR")))


def _client(kind: type[_Client], timeout: float | httpx2.Timeout, proxies: bool = True) -> _Client:
    if proxies:
        _check_proxies()
    agent = {"User-Agent": f"kvasir/{version()}", "Accept-Encoding": "identity"}
    try:
        return kind(verify=certificates(), timeout=timeout, headers=agent, trust_env=proxies)
    except ImportError as error:
        raise FetchFailed(
            f"{_variable('all') or 'The proxy'} names a SOCKS proxy, for which a part is missing ({error.name}). "
            "Install Kvasir again."
        ) from None


def _check_proxies() -> None:
    """Raises :class:`FetchFailed` for a proxy that cannot be used, and names the variable that it stands in."""
    import httpx2

    for kind, address in urllib.request.getproxies().items():
        if kind not in ("http", "https", "all"):
            continue
        address = address if "://" in address else f"http://{address}"
        try:
            usable = httpx2.URL(address).scheme in PROXIES and bool(httpx2.URL(address).host)
        except (httpx2.InvalidURL, ValueError):
            usable = False
        if not usable:
            where = _variable(kind) or f"The system's proxy for {kind}"
            raise FetchFailed(
                f"{where} cannot be used as a proxy. Write its address as http://HOST:PORT or socks5://HOST:PORT, "
                "or unset it."
            )


def _variable(kind: str) -> str:
    """The variable that names the proxy of a kind; "" where none does, but the system's settings."""
    return next((name for name in os.environ if name.lower() == f"{kind}_proxy" and os.environ[name]), "")


def _named(variable: str) -> str:
    return os.environ.get(variable, "")


@functools.cache
def _context(*certificates: str) -> ssl.SSLContext | bool:
    """TLS context of :data:`BUNDLES` and SSL_CERT_DIR; True: the system's own trust. Raises :class:`FetchFailed`."""
    *bundles, folder = certificates
    variable, file = next(((name, value) for name, value in zip(BUNDLES, bundles, strict=True) if value), ("", ""))
    if folder and not os.path.isdir(folder):
        raise FetchFailed(f"SSL_CERT_DIR names {folder}, which is not a folder. Correct or unset it.")
    if not variable:
        # Windows and macOS are asked themselves; True stands for that.
        return True if sys.platform in ("win32", "darwin") and not folder else trust.trusted()
    try:
        if os.path.isdir(file) and variable != "SSL_CERT_FILE":
            return ssl.create_default_context(capath=file)
        if not os.path.isfile(file):  # a pipe would wait for ever
            raise FetchFailed(f"{variable} names {file}, where no file is. Correct or unset it.")
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise FetchFailed(
            f"{variable} names {file}, which holds no certificates ({error.strerror or error}). Correct or unset it."
        ) from None
