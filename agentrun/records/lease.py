"""Who executes a run: the lease, as it stands in `lease.json` and as the capability that writers pass on."""

from __future__ import annotations

from agentrun.named import NamedTuple
from agentrun.records.codec import FORMAT_VERSION, Doc
from agentrun.records.fields import LEASE, check_fields


class Owner(NamedTuple):
    """A process that cannot be mistaken for another: a pid is used again, its start time and boot are not.

    `start_time` is in clock ticks since boot, field 22 of /proc/PID/stat (proc(5)), `pid_namespace` the inode of
    /proc/PID/ns/pid, in which alone the number means something; None where there is no /proc, or nobody noted it.
    `user_namespace` is the inode of /proc/PID/ns/user where that is one below the owner of the PID namespace: among
    the processes of the others in there; None else.
    """

    user: str
    host: str
    pid: int
    start_time: int | None
    boot_id: str | None
    pid_namespace: int | None = None
    user_namespace: int | None = None

    def to_doc(self) -> Doc:
        """The fields as they are stored."""
        doc: Doc = {
            "user": self.user,
            "host": self.host,
            "pid": self.pid,
            "startTime": self.start_time,
            "bootId": self.boot_id,
        }
        doc |= {"pidNamespace": self.pid_namespace} if self.pid_namespace is not None else {}
        return doc | ({"userNamespace": self.user_namespace} if self.user_namespace is not None else {})

    @classmethod
    def from_doc(cls, doc: Doc) -> Owner:
        """The owner in a stored document. Raises ValueError if it is none."""
        pid = doc.get("pid")
        if type(pid) is not int:
            raise ValueError("no owner: pid is missing")
        where = doc.get("startTime"), doc.get("bootId"), doc.get("pidNamespace"), doc.get("userNamespace")
        return cls(str(doc.get("user")), str(doc.get("host")), pid, *where)

    def __str__(self) -> str:
        return owner_words(self.to_doc())


def owner_words(doc: Doc) -> str:
    """The owner in a stored document, for people, whatever of it is there."""
    return f"{doc.get('user')}@{doc.get('host')} (pid {doc.get('pid')})"


class Lease(NamedTuple):
    """The right to write into one run: held by `owner`, in `generation`.

    `renewed_at` and `expires_at` are wall times for display; `expires_boot_seconds` is what is compared, on the
    clock of the boot named in `owner`. `executing_ms` is the executing time that the run had used when it was renewed.
    `locked` says that the owner got the executor's lock from one that was fenced out.
    """

    generation: int
    owner: Owner
    renewed_at: str
    expires_at: str
    expires_boot_seconds: float
    executing_ms: int = 0
    locked: bool = False

    def to_doc(self) -> Doc:
        """The document's fields in the order they are stored."""
        return {
            "formatVersion": FORMAT_VERSION,
            "generation": self.generation,
            "owner": self.owner.to_doc(),
            "renewedAt": self.renewed_at,
            "expiresAt": self.expires_at,
            "expiresBootSeconds": round(self.expires_boot_seconds, 3),
            "executingMs": self.executing_ms,
        } | ({"locked": True} if self.locked else {})

    @classmethod
    def from_doc(cls, doc: Doc) -> Lease:
        """The lease in a decoded document. Raises ValueError if it is none."""
        check_fields(doc, LEASE, "lease")
        generation, owner, expires = doc.get("generation"), doc.get("owner"), doc.get("expiresBootSeconds")
        if generation is None or owner is None or expires is None:
            raise ValueError("no lease: generation, owner or expiresBootSeconds is missing")
        return cls(
            generation,
            Owner.from_doc(owner),
            str(doc.get("renewedAt")),
            str(doc.get("expiresAt")),
            float(expires),
            doc.get("executingMs", 0),
            doc.get("locked", False),
        )
