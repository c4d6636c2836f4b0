import { useState } from 'react';
import { fileURL, type Place } from '../route/place.ts';
import { baseName, shownName } from '../text/names.ts';
import { Notice } from '../ui/Notice.tsx';

/** The formats that browsers show and that cannot run anything. */
const formats = /\.(png|jpe?g|gif|webp|avif|bmp|ico)$/i;

export function isPicture(path: string): boolean {
  return formats.test(path);
}

interface PictureProps {
  place: Place;
  /** Changes with the content, so that a new picture replaces the old. */
  version: string;
}

/** An image file, on a pattern that shows where it is transparent. */
export function Picture({ place, version }: PictureProps) {
  const [failed, setFailed] = useState('');
  const [size, setSize] = useState('');
  const name = baseName(place.path);
  if (failed === version && version !== '') {
    return (
      <Notice icon="file" title="No preview" actions={<a className="button" href={fileURL(place)} download={name}>Download</a>}>
        <p>The content of this file is not an image that the browser can show.</p>
      </Notice>
    );
  }
  return (
    <figure className="picture">
      <img
        key={version}
        src={`${fileURL(place)}?${new URLSearchParams({ version })}`}
        alt={shownName(name)}
        onLoad={(e) => setSize(`${e.currentTarget.naturalWidth} × ${e.currentTarget.naturalHeight}`)}
        onError={() => setFailed(version)}
      />
      <figcaption>{size}</figcaption>
    </figure>
  );
}
