"""PUBLIC: what adapters that speak HTTP share: secrets, TLS, bounded requests, OAuth2 tokens and error sentences.

An error message is a sentence that begins with the name of the server. It never holds a secret, the parameters of a
URL, or the text of a foreign exception, which may repeat the URL.
"""

# "import X as X" makes a name part of this package (PEP 484), from which adapters import it.
from hpad.adapter_http.client import Http as Http
from hpad.adapter_http.exchange import FORM as FORM
from hpad.adapter_http.exchange import UNDECODABLE as UNDECODABLE
from hpad.adapter_http.exchange import Request as Request
from hpad.adapter_http.exchange import RequestFailedError as RequestFailedError
from hpad.adapter_http.exchange import Response as Response
from hpad.adapter_http.exchange import TooLargeError as TooLargeError
from hpad.adapter_http.exchange import count_elements as count_elements
from hpad.adapter_http.exchange import decoded as decoded
from hpad.adapter_http.exchange import failure as failure
from hpad.adapter_http.exchange import first_line as first_line
from hpad.adapter_http.options import HttpLoginSettings as HttpLoginSettings
from hpad.adapter_http.options import HttpOptions as HttpOptions
from hpad.adapter_http.options import HttpSettings as HttpSettings
from hpad.adapter_http.options import OAuth2 as OAuth2
from hpad.adapter_http.options import Secret as Secret
from hpad.adapter_http.options import SecretRef as SecretRef
from hpad.adapter_http.options import Tls as Tls
from hpad.adapter_http.options import TlsOptions as TlsOptions
from hpad.adapter_http.options import TlsSettings as TlsSettings
from hpad.adapter_http.options import duration_error as duration_error
from hpad.adapter_http.options import host_and_port as host_and_port
from hpad.adapter_http.options import hosts_error as hosts_error
from hpad.adapter_http.options import read_secrets as read_secrets
from hpad.adapter_http.options import refuse as refuse
from hpad.adapter_http.options import secret as secret
from hpad.adapter_http.options import secret_error as secret_error
from hpad.adapter_http.options import url_error as url_error
from hpad.adapter_http.options import url_list as url_list
