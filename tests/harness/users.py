"""Users of a core."""


def guard(core, **users):
    """Switches authentication on. There are root and these users, each with its name as its
    password, and what it may read and write, as etcdctl wants it: guard(core, ann=["--prefix a/"]).
    Users who may do the same have one role. Returns the core as root sees it."""
    words = ["user add root:root", "user grant-role root root"]
    for permissions in {tuple(each): () for each in users.values()}:
        alike = [user for user, each in users.items() if tuple(each) == permissions]
        words += [f"role add {alike[0]}",
                  *(f"role grant-permission {alike[0]} readwrite {each}" for each in permissions)]
        for user in alike:
            words += [f"user add {user}:{user}", f"user grant-role {user} {alike[0]}"]
    for each in [*words, "auth enable"]:
        core.etcdctl(*each.split())
    return core.as_user("root", "root")
