# The course in a container: for a laptop without a compiler, for Binder, a dev container and a JupyterHub (docs/hosting.md).
#
#   docker build -t course .
#   docker run --rm -p 8888:8888 course          # then open the address that it prints
#
# Without a GPU choose "CPU" in the selector on PyTorch's site and hand its index on; the image is then some GB smaller:
#   docker build -t course --build-arg TORCH_INDEX=... .

FROM python:3.11-slim-bookworm

# A compiler for the frame hook and the generated C++; `dot`; walls for `course grade`.
RUN apt-get update \
    && apt-get install -y --no-install-recommends make gcc g++ libc6-dev git graphviz bubblewrap \
    && rm -rf /var/lib/apt/lists/*

# Binder wants a user of its own with this number.
ARG NB_USER=learner
ARG NB_UID=1000
ENV USER=${NB_USER} HOME=/home/${NB_USER} VENV=/opt/course PATH=/opt/course/bin:$PATH PIP_NO_CACHE_DIR=1 CC=gcc CXX=g++
RUN useradd --create-home --uid ${NB_UID} ${NB_USER} \
    && mkdir -p ${VENV} ${HOME}/course ${HOME}/.cache \
    && chown -R ${NB_USER}: ${VENV} ${HOME}
USER ${NB_USER}
WORKDIR ${HOME}/course

# torch first: it is the largest layer, and stays when a lesson changes.
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=
RUN python3 -m venv ${VENV} && pip install -q ${TORCH_INDEX:+--index-url ${TORCH_INDEX}} "${TORCH}"

COPY --chown=${NB_USER} . .
RUN make setup PYTHON=python3 EXTRAS=course,hub && jupyter trust notebooks/*.ipynb && course start && course doctor

EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser", "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb"]
