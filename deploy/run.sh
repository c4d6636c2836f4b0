#!/bin/bash
# From an empty machine to a running berth. Arguments go to `berth up`.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
"$top/deploy/install.sh" run
"$top/deploy/build.sh"
"$top/deploy/image/build.sh"
say "starting berth"
exec "$top/bin/berth" up "$@"
