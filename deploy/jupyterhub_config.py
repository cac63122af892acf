"""A JupyterHub for a class: each learner gets a container of the course's image (docs/hosting.md).

    docker build -t course . && pip install 'jupyterhub>=5,<6' dockerspawner && jupyterhub -f deploy/jupyterhub_config.py

Change the three settings that are marked before strangers can reach it.
"""

import os
from pathlib import PurePosixPath

c = get_config()  # noqa: F821  (JupyterHub gives it)

c.JupyterHub.bind_url = os.environ.get("HUB_URL", "http://127.0.0.1:8000")  # change: https, behind your proxy
c.JupyterHub.authenticator_class = "shared-password"  # change: OAuthenticator, LTI, …
c.SharedPasswordAuthenticator.user_password = os.environ["HUB_PASSWORD"]  # change: goes with the authenticator above
c.Authenticator.allow_all = True

c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.JupyterHub.hub_ip = "0.0.0.0"  # containers reach the hub over Docker's bridge, where the host's own name is not known
c.JupyterHub.hub_connect_ip = os.environ.get("HUB_CONNECT_IP", "172.17.0.1")  # `docker network inspect bridge`: the gateway
c.DockerSpawner.image = os.environ.get("COURSE_IMAGE", "course")
c.DockerSpawner.cmd = ["jupyterhub-singleuser"]
home = PurePosixPath("/home", os.environ.get("NB_USER", "learner"))  # in the container: the Dockerfile's NB_USER
c.DockerSpawner.notebook_dir = str(home / "course")
c.DockerSpawner.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
c.DockerSpawner.remove = True  # the container goes, the volumes stay

# A new volume begins as a copy of what the image has in that place: the learner's copies of the exercises, and where kernels
# are kept. Answers of the first edition lie in the volume of `exercises/`; `course update` moves them to `work/`.
c.DockerSpawner.volumes = {
    "course-{username}-work": str(home / "course/work"),
    "course-{username}-exercises": str(home / "course/exercises"),
    "course-{username}-cache": str(home / ".cache"),
}

# A lesson needs a core and 2 GB now and then; the grader's own limits are in docs/grading.md.
c.DockerSpawner.mem_limit = "4G"
c.DockerSpawner.cpu_limit = 2
c.DockerSpawner.environment = {"OMP_NUM_THREADS": "2"}
